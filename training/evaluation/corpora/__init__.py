"""What an evaluation reads: labelled, linked, judged or plain documents, from files."""
