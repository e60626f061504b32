// The page's own server: where its sessions go, and which certificates it shows today.

import { connect, type Session } from "../index.js";

/** What `/towline.json` says. */
export interface Site {
  /** Origin of the WebTransport server. */
  url: string;
  pins: string[];
  version: string;
}

/** Asks anew each time: pins change when a certificate is replaced. */
export async function site(signal?: AbortSignal): Promise<Site> {
  const answer = await fetch("/towline.json", { cache: "no-store", ...(signal === undefined ? {} : { signal }) });
  if (!answer.ok) {
    throw new Error(`the page's server answers ${answer.status}`);
  }
  const { url, pins, version } = (await answer.json()) as Partial<Site>;
  if (typeof url !== "string" || !Array.isArray(pins)) {
    throw new Error("the page's server says neither address nor pins");
  }
  return { url, pins, version: version ?? "" };
}

/** Opens a session to a path of it. */
export async function open(path: string, signal?: AbortSignal): Promise<Session> {
  const { url, pins } = await site(signal);
  return connect(new URL(path, url).href, { pins, ...(signal === undefined ? {} : { signal }) });
}

/** The element with this id, which the page has. */
export function element<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (found === null) {
    throw new Error(`the page has no #${id}`);
  }
  return found as T;
}

/** Adds a line of parts to a list and lets the oldest go. */
export function addLine(list: HTMLElement, parts: readonly string[], kind = ""): void {
  const line = document.createElement("li");
  line.className = kind;
  for (const part of parts) {
    const span = document.createElement("span");
    span.textContent = part;
    line.append(span);
  }
  list.append(line);
  while (list.childElementCount > 200) {
    list.firstElementChild?.remove();
  }
  list.scrollTop = list.scrollHeight;
}
