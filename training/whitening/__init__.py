"""DocSplit in closed form: a linear map after an encoder, fitted without labels."""
