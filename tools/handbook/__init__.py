"""The documentation as a site: pages of ``docs/``, a reference made of docstrings, and checks.

`staging` puts together what is built, `reference` and `commands` write the reference, `checking`
looks at the result, `overview` writes ``llms.txt``. ``tools/make_site.py`` runs them.
"""
