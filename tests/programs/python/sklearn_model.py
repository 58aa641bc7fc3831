"""Proves: fitted models survive and can be trained further.
How: an incremental classifier gets a batch with each step and a forest is fitted once; a check trains another
of each the same way from scratch and compares coefficients and predictions; the forest predicts on several
threads."""

import program

np = program.require("numpy")
program.require("sklearn")
from sklearn.ensemble import RandomForestClassifier  # noqa: E402 (after the check that it is there)
from sklearn.linear_model import SGDClassifier  # noqa: E402

steps = 0


def batch(n):
    rng = np.random.default_rng(n)
    x = rng.normal(size=(400, 12))
    return x, (x[:, 0] + 0.5 * x[:, 1] > 0).astype(int)


def trained(batches):
    model = SGDClassifier(random_state=3)
    for n in range(batches):
        model.partial_fit(*batch(n), classes=[0, 1])
    return model


def grown():
    return RandomForestClassifier(n_estimators=20, random_state=4, n_jobs=2).fit(*batch(1000))


def setup():
    global model, forest
    model, forest = trained(1), grown()


def check():
    again = trained(steps + 1)
    program.expect("coefficients", model.coef_.tolist(), again.coef_.tolist())
    x, _ = batch(2000)
    program.expect("predictions", model.predict(x).tolist(), again.predict(x).tolist())
    program.expect(
        "forest's probabilities", forest.predict_proba(x).round(9).tolist(), grown().predict_proba(x).round(9).tolist()
    )


def step():
    global steps
    steps += 1
    model.partial_fit(*batch(steps))


program.run(setup, check, step, lambda: model.coef_.round(9).tolist())
