"""Language models behind the port of `selectrie.model`: one package each, imported when named."""
