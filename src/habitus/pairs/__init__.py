"""Preference pairs with country and annotator, from public data (papers: SCPO)."""
