"""Cut a recording of a robot (one pickle with a list of transitions) into labelled episodes to train a classifier on:

python examples/embodiment/process_realworld_data.py data.pkl

They are in the directory collected_data beside the file.
"""

import argparse
import sys

from rewardlab.cli import main
from rewardlab.cli.execute import execute


def process(recording: str) -> int:
    from rewardlab.compat.robot_recording import convert_recording

    return main(["data", "info", str(convert_recording(recording))])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", metavar="PKL")
    arguments = parser.parse_args()
    sys.exit(execute(lambda: process(arguments.recording)))
