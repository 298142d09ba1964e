"""The game: the designer's turn, rounds, the pool, paired plays and regret, and the loop that reads like the algorithm."""
