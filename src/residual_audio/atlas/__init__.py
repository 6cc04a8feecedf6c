"""The head atlas: a static site on which every head of a run can be seen, heard and moved.

It is made from what a run left behind (store, tables, results, gains, previews); no model is
loaded. Each file here makes one kind of data; `web/` holds the page that shows it.
"""
