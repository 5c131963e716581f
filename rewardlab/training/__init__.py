"""From labelled episodes to a reward model one can trust: training, its figures and the report."""
