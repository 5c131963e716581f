"""Cut a recording of a robot (one pickle with a list of transitions) into labelled episodes to train a classifier on:

python examples/embodiment/process_realworld_data.py data.pkl [--out DIR] [--crop CAMERA=TOP,LEFT,HEIGHT,WIDTH]

They are in the directory collected_data beside the file. The same as `rewardlab data process`.
"""

import sys

from rewardlab.cli import main

if __name__ == "__main__":
    sys.exit(main(["data", "process", *sys.argv[1:]]))
