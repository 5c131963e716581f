"""Training of success classifiers on labelled episodes."""
