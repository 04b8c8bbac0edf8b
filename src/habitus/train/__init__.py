"""Training of reward models: SCPO, Bradley-Terry, Think-as-Locals. Needs the extra `train`."""
