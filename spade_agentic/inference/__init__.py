"""Inference: the policy client, the embedded CPU engine, and the publishing of weights.

``client`` talks to any server of the OpenAI/SGLang dialect; ``engine`` launches the embedded server (its own process,
package ``embedded``) and publishes weights to it; ``publishing`` writes and fingerprints weights folders. Only
``embedded`` imports torch.
"""
