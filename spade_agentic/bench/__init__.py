"""Tables of runs: several configs times several seeds, run as one resumable job, and summed up with intervals."""
