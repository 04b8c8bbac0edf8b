"""Clients: where model weights come from, and the engines that run them."""
