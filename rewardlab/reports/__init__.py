"""What people look at: the log of a run, HTML reports, model cards, plots."""
