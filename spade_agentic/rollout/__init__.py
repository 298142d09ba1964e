"""Plays: rendering, parsing, sessions and their trajectories, the episode, and the scheduler that decides what runs when."""
