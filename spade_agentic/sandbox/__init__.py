"""Where programs run: killable workers, the protocol to them, and the backends ``process`` and ``bubblewrap``.

From the host outwards: :mod:`backend` (the pool, what a run uses), :mod:`worker` and :mod:`play` (one loaded program, one
play of it), :mod:`channel` (the host's side of the protocol). On the other side, in processes of their own:
:mod:`spawner`, :mod:`zygote` (one for each hash seed), :mod:`supervisor` (one for each worker), :mod:`runner`.
"""
