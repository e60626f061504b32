// How long to wait before the next attempt.

/** Milliseconds, and how they grow. */
export interface BackoffOptions {
  /** The first wait; 250 if not said. */
  first?: number;
  /** The longest wait; 15,000 if not said. */
  most?: number;
  /** A random number from 0 to 1, for tests. */
  random?: () => number;
}

/**
 * Waits that double from attempt to attempt. Each is drawn between half and all of its bound, so that
 * clients which lost one server together do not come back together.
 */
export class Backoff {
  readonly #first: number;
  readonly #most: number;
  readonly #random: () => number;
  #attempts = 0;

  constructor(options: BackoffOptions = {}) {
    this.#first = options.first ?? 250;
    this.#most = options.most ?? 15_000;
    this.#random = options.random ?? Math.random;
  }

  /** The next wait in milliseconds. */
  next(): number {
    // 2^30 is above every sensible bound, and no attempt count overflows.
    const bound = Math.min(this.#most, this.#first * 2 ** Math.min(this.#attempts, 30));
    this.#attempts += 1;
    return (bound / 2) * (1 + this.#random());
  }

  /** Begins with the first wait again. */
  reset(): void {
    this.#attempts = 0;
  }
}

/** Waits; ends early, without an error, when the signal says so. */
export function pause(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted === true) {
      resolve();
      return;
    }
    const done = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    signal?.addEventListener("abort", done);
  });
}
