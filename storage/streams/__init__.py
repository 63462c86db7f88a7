"""What relay and workers say to each other over Redis: jobs, results, signs of life."""
