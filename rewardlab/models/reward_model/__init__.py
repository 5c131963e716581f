"""Holds one command under an older path; the models are one folder above."""
