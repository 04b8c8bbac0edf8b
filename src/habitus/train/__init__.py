"""Training of reward models: SCPO, Bradley-Terry, Think-as-Locals. Needs the extra `train`.

`habitus.train.rm` trains one reward model on pairs, `habitus.train.scpo` one for each country of a
study, `habitus.train.policy` a policy against reward models. Importing this package needs no extra.
"""
