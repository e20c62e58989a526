"""Language models behind the port of `selectrie.core.model`: one package each, imported when named."""
