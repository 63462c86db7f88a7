"""Where the thresholds of enrolment come from: measured on recordings of people, run by `python -m`, not in service."""
