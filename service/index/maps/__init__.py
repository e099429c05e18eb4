"""Maps of indexes: stored coordinates and topics, and those of the present documents."""
