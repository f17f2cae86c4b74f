from hypothesis import settings

# Properties hold on a busy machine too: no deadline, and the same examples on every run.
settings.register_profile("steady", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("steady")
