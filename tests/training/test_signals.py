import os
import signal
import threading

import pytest

from transformer.training.signals import Interrupted, StopRequest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_noted_and_the_handler_given_back(number):
    before = signal.getsignal(number)
    with StopRequest() as stop:
        assert stop.signal is None
        os.kill(os.getpid(), number)
        assert stop.signal == number
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_interrupts():
    with pytest.raises(KeyboardInterrupt), StopRequest():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)


def test_work_that_may_be_dropped_is_interrupted():
    with StopRequest() as stop:
        with pytest.raises(Interrupted), stop.interrupting():
            os.kill(os.getpid(), signal.SIGTERM)
            pytest.fail("not interrupted")
        assert stop.signal == signal.SIGTERM
        with pytest.raises(Interrupted), stop.interrupting():
            pytest.fail("begun after the signal")


def test_other_threads_train_without_signals():
    failures = []

    def work():
        try:
            with StopRequest() as stop:
                failures.append(stop.signal)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failures == [None]
