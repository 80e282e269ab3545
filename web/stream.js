// The connection to the gateway: one stream of events, reopened when it breaks. A browser has six
// connections to a host over HTTP/1.1 for all tabs. So only a visible page holds one: a hidden page
// polls rarely, and a page that was left holds none.

const SILENCE_MS = 5_000;
const HIDDEN_MS = 15_000;
const WAIT_MS = [500, 1_000, 2_000, 4_000, 8_000];

/** Reads an event stream's text; each event is its name and its data, which is one line of JSON. */
class Events {
  #rest = '';

  *take(chunk) {
    this.#rest += chunk;
    for (let end = this.#rest.indexOf('\n\n'); end >= 0; end = this.#rest.indexOf('\n\n')) {
      const event = { name: 'message', data: '' };
      for (const line of this.#rest.slice(0, end).split('\n')) {
        if (line.startsWith('event: ')) event.name = line.slice(7);
        else if (line.startsWith('data: ')) event.data = line.slice(6);
      }
      this.#rest = this.#rest.slice(end + 2);
      yield event;
    }
  }
}

/**
 * Calls `on.history` and `on.state` with the received data, and `on.status` with `{live}` or
 * `{reason, since, next}` (milliseconds) at changes.
 */
export class Connection {
  #failures = 0;
  #since = null;
  #wake = null;
  #abort = null;
  #left = false;

  constructor(on) {
    this.on = on;
    addEventListener('online', () => this.retry());
    document.addEventListener('visibilitychange', () => this.#turn());
    // A page that was left may be cached and shown again.
    addEventListener('pagehide', () => this.#turn(true));
    addEventListener('pageshow', () => this.#turn(false));
  }

  get #resting() {
    return this.#left || document.hidden;
  }

  #turn(left = this.#left) {
    this.#left = left;
    if (this.#resting) this.#abort?.abort();
    else this.retry();
  }

  /** Ends the pause before the next attempt. */
  retry() {
    this.#wake?.();
  }

  #wait(ms) {
    return new Promise((resolve) => {
      this.#wake = resolve;
      setTimeout(resolve, ms);
    });
  }

  async run() {
    for (;;) {
      if (this.#resting) {
        await this.#ask();
        if (this.#resting) await this.#wait(HIDDEN_MS);
        continue;
      }
      const reason = await this.#read();
      if (reason === null) continue;
      this.#since ??= Date.now();
      const wait = WAIT_MS[Math.min(this.#failures, WAIT_MS.length - 1)];
      this.#failures += 1;
      this.on.status({ live: false, reason, since: this.#since, next: Date.now() + wait });
      await this.#wait(wait);
    }
  }

  /** Fetches the state once, for the tab's title. */
  async #ask() {
    if (this.#left) return;
    try {
      const answer = await fetch('api/state', { cache: 'no-store', signal: AbortSignal.timeout(SILENCE_MS) });
      if (answer.ok) this.on.state(await answer.json());
    } catch {
      // Reported when the page is visible again.
    }
  }

  /** Reads one stream to its end. Returns why it ended; null if the page closed it. */
  async #read() {
    const abort = new AbortController();
    this.#abort = abort;
    let silent = false;
    let alarm;
    const alive = () => {
      clearTimeout(alarm);
      alarm = setTimeout(() => {
        silent = true;
        abort.abort();
      }, SILENCE_MS);
    };
    try {
      alive();
      const answer = await fetch('api/stream', { signal: abort.signal, cache: 'no-store' });
      if (!answer.ok) return refusal(answer.status, await answer.text());
      const events = new Events();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return 'the gateway closed the connection';
        alive();
        for (const event of events.take(value)) this.#event(event);
      }
    } catch (error) {
      if (silent) return `no events for ${SILENCE_MS / 1000} s`;
      if (abort.signal.aborted) return null;
      return error instanceof TypeError ? 'the gateway does not respond' : String(error);
    } finally {
      clearTimeout(alarm);
      abort.abort();
    }
  }

  #event({ name, data }) {
    if (name !== 'history' && name !== 'state') return;
    this.on[name](JSON.parse(data));
    if (name === 'state') {
      this.#failures = 0;
      this.#since = null;
      this.on.status({ live: true });
    }
  }
}

function refusal(status, body) {
  const why = body.trim().slice(0, 200);
  if (status === 401 || status === 403) return `the gateway requires other credentials (${status}): reload the page`;
  return `the gateway responded with ${status}${why ? `: ${why}` : ''}`;
}
