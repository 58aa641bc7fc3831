"""Proves: data frames survive: every kind of column, indexes, groups, views into shared blocks.
How: a frame grows by each step; a check builds the same one from scratch and compares frames, a groupby, a
merge, a rolling mean."""

import program

np = program.require("numpy")
pd = program.require("pandas")
steps = 0


def part(n):
    rng = np.random.default_rng(n)
    return pd.DataFrame(
        {
            "whole": rng.integers(0, 1000, 5000),
            "real": rng.random(5000),
            "flag": rng.random(5000) > 0.5,
            "text": [f"row {i % 97}" for i in range(5000)],
            "kind": pd.Categorical(rng.choice(["a", "b", "c"], 5000), ["a", "b", "c"]),
            "when": pd.date_range("2024-01-01", periods=5000, freq="h", tz="UTC"),
            "missing": pd.array([None, n] * 2500, "Int64"),
        }
    )


def whole(n):
    return pd.concat([part(i) for i in range(n + 1)], ignore_index=True)


def summary(frame):
    grouped = frame.groupby("kind", observed=True)["real"].agg(["mean", "sum", "count"])
    merged = frame.head(500).merge(frame.tail(500), on="text")
    rolling = frame["real"].rolling(50).mean().fillna(0)
    return program.sha(
        pd.util.hash_pandas_object(frame).values.tobytes(), grouped.to_csv(), len(merged), rolling.values.tobytes()
    )


def setup():
    global frame, window, by_time
    frame = part(0)
    window = frame.loc[100:200, "real"]  # shares memory with the frame, or is a lazy copy of it
    by_time = frame.set_index("when")


def check():
    expected = whole(steps)
    pd.testing.assert_frame_equal(frame, expected)
    program.expect("summary", summary(frame), summary(expected))
    program.expect("window", window.tolist(), part(0).loc[100:200, "real"].tolist())
    program.expect("lookup by time", int(by_time.loc["2024-01-03 05:00+00:00", "whole"]), int(part(0)["whole"][53]))


def step():
    global steps, frame
    steps += 1
    frame = pd.concat([frame, part(steps)], ignore_index=True)


program.run(setup, check, step, lambda: summary(frame))
