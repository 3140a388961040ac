"""Problems as solvers want them: one module per problem, found by its name.

Each module registers a formulation (`FORMULATIONS.register("flp")(...)`) that turns an instance of
the environment into a plain description, and a solution of that into actions.
"""
