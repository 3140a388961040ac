"""`python run.py experiment=...` is the same as `rl4co train experiment=...`."""

from rl4co.tasks.train import main

if __name__ == "__main__":
    main()
