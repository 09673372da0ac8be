"""`transformer train`: python train.py --config configs/quickstart.py --workdir runs/quickstart"""

import sys

from transformer.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
