// A plot of the last seconds, drawn as it goes.

/** One series of a plot. */
export interface Series {
  /** The CSS variable with its colour. */
  color: string;
  kind: "area" | "dots";
}

/** The time that is seen, in milliseconds. */
const SPAN = 15_000;
/** Points of a series that are kept, whatever their rate. */
const MOST_POINTS = 6_000;
const MARGIN = { left: 52, right: 8, top: 8, bottom: 22 };

interface Point {
  at: number;
  value: number;
}

/** Draws on a canvas whenever something changed, and while points move out of sight. */
export class LivePlot {
  readonly #canvas: HTMLCanvasElement;
  readonly #series: readonly Series[];
  readonly #points: Point[][];
  readonly #marks: number[] = [];
  readonly #unit: string;
  #lastChange = 0;
  #drawing = false;
  #top = 1;

  constructor(canvas: HTMLCanvasElement, unit: string, series: readonly Series[]) {
    this.#canvas = canvas;
    this.#unit = unit;
    this.#series = series;
    this.#points = series.map(() => []);
    new ResizeObserver(() => this.#changed()).observe(canvas);
    matchMedia("(prefers-color-scheme: light)").addEventListener("change", () => this.#changed());
  }

  /** Adds a value to a series. */
  add(series: number, at: number, value: number): void {
    const points = this.#points[series];
    points?.push({ at, value });
    if (points !== undefined && points.length > MOST_POINTS) {
      points.splice(0, points.length - MOST_POINTS);
    }
    this.#changed();
  }

  /** Marks a moment at the bottom, in the colour of losses. */
  mark(at: number): void {
    this.#marks.push(at);
    this.#changed();
  }

  #changed(): void {
    this.#lastChange = performance.now();
    if (!this.#drawing) {
      this.#drawing = true;
      requestAnimationFrame(() => this.#frame());
    }
  }

  #frame(): void {
    const now = performance.now();
    this.#forget(now - SPAN - 1_000);
    this.#draw(now);
    if (now - this.#lastChange < SPAN + 1_000) {
      requestAnimationFrame(() => this.#frame());
    } else {
      this.#drawing = false;
    }
  }

  #forget(before: number): void {
    for (const points of [...this.#points, this.#marks]) {
      const fresh = points.findIndex((point) => (typeof point === "number" ? point : point.at) >= before);
      points.splice(0, fresh === -1 ? points.length : fresh);
    }
  }

  #draw(now: number): void {
    const ratio = devicePixelRatio;
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    if (this.#canvas.width !== Math.round(width * ratio) || this.#canvas.height !== Math.round(height * ratio)) {
      this.#canvas.width = Math.round(width * ratio);
      this.#canvas.height = Math.round(height * ratio);
    }
    const context = this.#canvas.getContext("2d");
    if (context === null) {
      return;
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
    const style = getComputedStyle(this.#canvas);
    const color = (name: string): string => style.getPropertyValue(name).trim();
    this.#scale();
    const x = (at: number): number => MARGIN.left + inner.width * (1 - (now - at) / SPAN);
    const y = (value: number): number => MARGIN.top + inner.height * (1 - Math.min(value / this.#top, 1));
    this.#grid(context, color, x, y, now, width);
    context.save();
    context.beginPath();
    context.rect(MARGIN.left, 0, inner.width + MARGIN.right, height);
    context.clip();
    this.#series.forEach((series, index) => {
      const points = this.#points[index] ?? [];
      const draw = series.kind === "area" ? area : dots;
      draw(context, points, color(series.color), x, y);
    });
    context.fillStyle = color("--lost");
    for (const at of this.#marks) {
      context.fillRect(x(at) - 1, y(0) - 14, 2, 14);
    }
    context.restore();
  }

  /** Moves the scale's top towards a round number above all that is seen. */
  #scale(): void {
    const highest = Math.max(...this.#points.map((points) => points.reduce((most, { value }) => Math.max(most, value), 0)));
    const wanted = roundAbove(highest * 1.08);
    this.#top = Math.abs(wanted - this.#top) < wanted / 100 ? wanted : this.#top + (wanted - this.#top) * 0.18;
  }

  #grid(
    context: CanvasRenderingContext2D,
    color: (name: string) => string,
    x: (at: number) => number,
    y: (value: number) => number,
    now: number,
    width: number,
  ): void {
    context.strokeStyle = color("--line");
    context.fillStyle = color("--soft");
    context.lineWidth = 1;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "right";
    const step = roundAbove(this.#top) / 4;
    for (let value = 0; value <= this.#top * 1.001; value += step) {
      const line = Math.round(y(value)) + 0.5;
      context.beginPath();
      context.moveTo(MARGIN.left, line);
      context.lineTo(width - MARGIN.right, line);
      context.stroke();
      context.fillText(short(value), MARGIN.left - 8, line);
    }
    context.textBaseline = "alphabetic";
    context.textAlign = "center";
    for (let back = 5_000; back < SPAN; back += 5_000) {
      context.fillText(`${back / 1_000} s ago`, x(now - back), y(0) + 16);
    }
    context.textAlign = "right";
    context.fillText("now", width - MARGIN.right, y(0) + 16);
    context.fillText(this.#unit, MARGIN.left - 8, y(0) + 16);
  }
}

type Place = (value: number) => number;

function area(context: CanvasRenderingContext2D, points: readonly Point[], color: string, x: Place, y: Place): void {
  const [first, last] = [points[0], points.at(-1)];
  if (first === undefined || last === undefined) {
    return;
  }
  const line = new Path2D();
  line.moveTo(x(first.at), y(first.value));
  points.forEach(({ at, value }) => line.lineTo(x(at), y(value)));
  const filled = new Path2D(line);
  filled.lineTo(x(last.at), y(0));
  filled.lineTo(x(first.at), y(0));
  context.globalAlpha = 0.16;
  context.fillStyle = color;
  context.fill(filled);
  context.globalAlpha = 1;
  context.strokeStyle = color;
  context.lineWidth = 2;
  context.lineJoin = "round";
  context.stroke(line);
}

function dots(context: CanvasRenderingContext2D, points: readonly Point[], color: string, x: Place, y: Place): void {
  context.fillStyle = color;
  context.globalAlpha = 0.75;
  for (const { at, value } of points) {
    context.fillRect(x(at) - 1.25, y(value) - 1.25, 2.5, 2.5);
  }
  context.globalAlpha = 1;
}

/** The next of 1, 2, 4, 8 times a power of ten. */
function roundAbove(value: number): number {
  if (value <= 0) {
    return 1;
  }
  const power = 10 ** Math.floor(Math.log10(value));
  return (([1, 2, 4, 8] as const).find((digit) => digit * power >= value) ?? 10) * power;
}

/** A number in few characters. */
export function short(value: number): string {
  if (value === 0) {
    return "0";
  }
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}
