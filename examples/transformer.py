"""A small transformer learns, letter by letter, to write words backwards.

The text is "pulo olup. rasa asar. " and so on, in words of random letters, so that what the model writes can be
checked, on words that it has never seen. Attention with rotary positions, norms and the optimizer (AdamW with warm-up
and gradient clipping) are functions, the model is a tree of arrays, and the whole step is one native call.

Run it with: python examples/transformer.py
"""

import numpy as np

import pullback as pb

LETTERS = list(". abcdefghijklmnopqrstuvwxyz")
WIDTH, HEADS, LAYERS, LENGTH = 48, 4, 2, 32


def new_words(random, count):
    """Words of a consonant, a vowel, a consonant, a vowel."""
    letters = [random.choice(list(kind), size=count) for kind in ("bdfgklmnprstvz", "aeiou") * 2]
    return ["".join(word) for word in zip(*letters, strict=True)]


def sentence(word):
    return f"{word} {word[::-1]}. "


def encoded(text):
    return np.array([LETTERS.index(letter) for letter in text])


def new_model(random):
    def matrix(rows, columns):
        return (random.normal(size=(rows, columns)) / np.sqrt(columns)).astype(np.float32)

    def block():
        ones = np.ones(WIDTH, np.float32)
        return {
            "norm1": ones, "qkv": matrix(3 * WIDTH, WIDTH), "out": matrix(WIDTH, WIDTH),
            "norm2": ones, "up": matrix(4 * WIDTH, WIDTH), "down": matrix(WIDTH, 4 * WIDTH),
        }  # fmt: skip

    return {
        "letters": matrix(len(LETTERS), WIDTH),
        "blocks": [block() for _ in range(LAYERS)],
        "norm": np.ones(WIDTH, np.float32),
    }


def attention(block, x):
    q, k, v = pb.split(pb.nn.linear(x, block["qkv"]), 3, axis=-1)
    q, k, v = (pb.moveaxis(pb.reshape(a, (*a.shape[:2], HEADS, -1)), 2, 1) for a in (q, k, v))
    q, k = pb.nn.rotary_embedding(q), pb.nn.rotary_embedding(k)
    found = pb.nn.scaled_dot_product_attention(q, k, v, is_causal=True)
    return pb.nn.linear(pb.reshape(pb.moveaxis(found, 1, 2), x.shape), block["out"])


def scores(model, letters):
    """For each place in (batch, length) letters, a score for each letter that may come next."""
    x = pb.nn.embedding(letters, model["letters"])
    for block in model["blocks"]:
        x = x + attention(block, pb.nn.rms_norm(x, block["norm1"]))
        x = x + pb.nn.linear(pb.nn.gelu(pb.nn.linear(pb.nn.rms_norm(x, block["norm2"]), block["up"])), block["down"])
    return pb.nn.linear(pb.nn.rms_norm(x, model["norm"]), model["letters"])


def loss(model, letters):
    return pb.nn.cross_entropy(scores(model, letters[:, :-1]), letters[:, 1:], axis=-1)


@pb.jit
def likeliest(model, text):
    return pb.argmax(scores(model, text), axis=-1)


def written(model, beginnings, count):
    """Each beginning, and the `count` letters that the model puts behind it one by one."""
    text, ends = np.zeros((len(beginnings), LENGTH), int), np.array([len(b) for b in beginnings])
    rows = np.arange(len(text))
    for row, beginning in zip(text, beginnings, strict=True):
        row[: len(beginning)] = encoded(beginning)
    for _ in range(count):  # all rows at once; what lies behind the end of a row has no say, attention is causal
        text[rows, ends] = likeliest(model, text)[rows, ends - 1]
        ends = ends + 1
    return ["".join(LETTERS[i] for i in row[:end]) for row, end in zip(text, ends, strict=True)]


def right(model, words):
    """The share of words that it turns rightly."""
    found = written(model, [sentence(word)[:-6] for word in words], 6)
    return float(np.mean([f == sentence(word) for f, word in zip(found, words, strict=True)]))


def main(steps: int = 800, batch: int = 24) -> float:
    random = np.random.default_rng(0)
    words = new_words(random, 3000)
    unseen = sorted(set(new_words(random, 500)) - set(words))
    text = encoded("".join(map(sentence, words)))

    model = new_model(random)
    plan = pb.optim.schedules.warm_up(50, then=pb.optim.schedules.cosine(6e-3, steps))
    rule = pb.optim.chain(pb.optim.clip_by_global_norm(1.0), pb.optim.adamw(plan, weight_decay=0.05))
    state = rule.init(model)

    @pb.jit(donate_argnums=(0, 1))  # weights and state are overwritten in place
    def step(model, state, letters):
        value, slopes = pb.value_and_grad(loss)(model, letters)
        updates, state = rule.update(slopes, state, model)
        return value, pb.optim.apply_updates(model, updates), state

    print(" step    loss  it writes")
    for i in range(steps + 1):
        rows = random.integers(len(text) - LENGTH, size=batch)[:, None] + np.arange(LENGTH + 1)
        value, model, state = step(model, state, text[rows])
        if i % (steps // 5) == 0:
            (example,) = written(model, ["pulo "], 17)
            print(f"{i:5d}  {value:6.3f}  {example!r}")
    share = right(model, unseen)
    print(f"\nof {len(unseen)} words that it has never seen it turns {share:.0%} rightly")
    assert share > 0.8
    return share


if __name__ == "__main__":
    main()
