"""Compiled programs, read as text: the lines are such as the compilers write."""

from transformer.parallel.hlo import Collective, read_program

TPU = """\
HloModule jit_train_step, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias), {1}: \
(1, {}, must-alias) }, entry_computation_layout={...}

%cond (p: (s32[], f32[8])) -> pred[] {
  %constant.1 = s32[]{:T(128)} constant(48)
  %p = (s32[]{:T(128)}, f32[8]{0:T(128)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%p), index=0
  ROOT %lt = pred[]{:T(512)} compare(%i, %constant.1), direction=LT
}

%async (q: bf16[400,6400]) -> (bf16[400,6400], bf16[1600,6400]) {
  %q = bf16[400,6400]{1,0:T(8,128)(2,1)} parameter(0)
  %all-gather.1 = bf16[1600,6400]{1,0:T(8,128)(2,1)} all-gather(%q), channel_id=7, \
replica_groups=mesh['axis_0'=4,'axis_1'=2], device_ids=([2,4]T(1,0)) {'axis_0'}, dimensions={0}
  ROOT %start = (bf16[400,6400]{1,0}, bf16[1600,6400]{1,0}) custom-call(%all-gather.1), \
custom_call_target="AsyncCollectiveStart"
}

%done (q: bf16[400,6400]) -> bf16[1600,6400] {
  %q = bf16[400,6400]{1,0:T(8,128)(2,1)} parameter(0)
  %all-gather.2 = bf16[1600,6400]{1,0:T(8,128)(2,1)} all-gather(%q), channel_id=7, \
replica_groups=mesh['axis_0'=4,'axis_1'=2], device_ids=([2,4]T(1,0)) {'axis_0'}, dimensions={0}
  ROOT %end = bf16[1600,6400]{1,0} custom-call(%all-gather.2), \
custom_call_target="AsyncCollectiveDone"
}

%all-reduce-scatter.1 (input: f32[128,64]) -> f32[128,16] {
  %input = f32[128,64]{1,0:T(8,128)} parameter(0)
  %all-reduce.1 = f32[128,64]{1,0:T(8,128)} all-reduce(%input), channel_id=8, \
replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%add
  ROOT %slice = f32[128,16]{1,0:T(8,128)} dynamic-slice(%all-reduce.1, %a, %b)
}

%body (p.1: (s32[], f32[8])) -> (s32[], f32[8]) {
  %fusion.1 = (bf16[400,6400]{1,0}, bf16[1600,6400]{1,0}) fusion(%x), kind=kCustom, calls=%async
  %kernel = (bf16[8,128]{1,0}) custom-call(%x), custom_call_target="tpu_custom_call", \
frontend_attributes={kernel_metadata={
"block":"128"
}}
  %fusion.2 = bf16[1600,6400]{1,0} fusion(%fusion.1), kind=kCustom, calls=%done
  ROOT %fusion.3 = f32[128,16]{1,0} fusion(%y), kind=kCustom, calls=%all-reduce-scatter.1
}

ENTRY %main (a: f32[8], b: f32[8]) -> (f32[8], f32[8]) {
  %while.1 = (s32[]{:T(128)}, f32[8]{0:T(128)}) while(%tuple), condition=%cond, body=%body
  ROOT %all-reduce.9 = (f32[8]{0:T(128)}, f32[]{:T(128)}) all-reduce(%a, %b), channel_id=9, \
replica_groups=[2,4]<=[8], to_apply=%add
}
"""

GPU = """\
HloModule jit_step, is_scheduled=true, input_output_alias={ {}: (0, {}, may-alias) }

%body (p: (s32[], f32[4])) -> (s32[], f32[4]) {
  %all-gather-start = (f32[1,4]{1,0}, f32[8,4]{1,0}) all-gather-start(%x), channel_id=1, \
replica_groups=[1,8]<=[8], dimensions={0}
  %all-gather-done = f32[8,4]{1,0} all-gather-done(%all-gather-start)
  %cudnn = (f16[2]{0}, u8[0]{0}) custom-call(%x), custom_call_target="__cudnn$fmhaSoftmax"
}

%one (p: f32[4]) -> f32[4] {
  %permute = (f32[4]{0}, f32[4]{0}, u32[]{:S(2)}, u32[]{:S(2)}) collective-permute-start(%p), \
channel_id=2, source_target_pairs={{0,1},{1,0}}
}

ENTRY %main (a: f32[4]) -> f32[4] {
  %while.1 = (s32[], f32[4]{0}) while(%tuple), condition=%cond, body=%body, \
backend_config={"known_trip_count":{"n":"12"},"known_init_step":{"init":"0","step":"1"}}
  ROOT %choice = f32[4]{0} conditional(%i, %a, %a), branch_computations={%one, %two}
}
"""


def test_a_tpus_program():
    """What runs beside other work is written three times, and is one."""
    program = read_program(TPU)
    assert program.collectives == [
        Collective("all-gather", (1600, 6400), 1600 * 6400 * 2, 4, 48),
        Collective("reduce-scatter", (128, 64), 128 * 16 * 4, 4, 48),
        Collective("all-reduce", (8,), 36, 4, 1),
    ]
    assert program.kernels == {"tpu_custom_call": 48}
    assert program.donated == 2


def test_a_gpus_program():
    program = read_program(GPU)
    assert program.collectives == [
        Collective("all-gather", (8, 4), 128, 8, 12),
        Collective("collective-permute", (4,), 16, 0, 1),
    ]
    assert program.kernels == {"__cudnn$fmhaSoftmax": 12}
    assert program.donated == 1


def test_what_must_reach_each_device():
    gathered, scattered, _ = read_program(TPU).collectives
    assert gathered.received == 1600 * 6400 * 2 * 3 / 4
    assert scattered.received == 128 * 16 * 4
    assert Collective("all-reduce", (8,), 32, 1, 1).received == 0
