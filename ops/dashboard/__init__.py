"""A page on which a deployment is watched: what is wrong, the graph, plots over the last hour, and each processor's insides.

observer --every 2 s--> picture --> history --> one stream of events to each browser
state folder, dead letters --when somebody asks--> what a processor keeps, and what it would make of an event now

It reads; nothing here writes to the bus, to a state or to a store.
"""
