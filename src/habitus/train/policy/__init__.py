"""A policy trained against reward models: do its answers get better, or does it hack? (CARB A3).

`run` trains one policy with GRPO against each reward model, on the same prompts with the same seed
and settings, and measures it on held-out questions before and after. `reward` scores a group of
answers as best-of-n would, `heldout` draws and scores held-out answers, `watch` looks for reward
hacking, and `figures` makes `policy.json` of the files. Importing this package needs no extra.
"""
