"""The environment contract, and the gates that a program passes before anyone plays it."""
