"""How the policy is trained: advantages, the loss, batches, and the backends.

:mod:`.advantages` and :mod:`.loss` are pure functions that every backend shares; :mod:`.batches` and :mod:`.attention`
turn sequences into micro-batches in which shared prefixes are computed once; :mod:`.torch_backend` is the learner of one
process. Importing this package imports none of them, so that what needs no torch does not load it.
"""
