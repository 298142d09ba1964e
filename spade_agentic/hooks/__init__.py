"""The plugin system: records, kinds of plugin, hook specifications, and the manager that finds and calls plugins.

``records``     the data that travels between the parts
``kinds``       what an object of each kind must be able to do (protocols), and the factories that build them
``specs``       every hook: who calls it, when, and what it may raise
``loading``     from a file, folder or module name to imported plugin modules
``answers``     what plugins answer, checked where it comes in
``manager``     registers plugins, checks them, builds their objects, calls their hooks
``resolution``  a whole run, resolved and costed before anything heavy is loaded
"""
