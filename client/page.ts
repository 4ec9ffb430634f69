/** The part of a browser's `window` that tells of the page's life. */
export type PageEvents = Pick<EventTarget, 'addEventListener' | 'removeEventListener'>

/**
 * Watches the page a client lives in: `leaves` when it is left for good (not when the browser keeps it for the back button), `returns`
 * when it comes back or the network does. The returned function ends the watch.
 */
export function watchPage(
  page: PageEvents,
  { leaves, returns }: { leaves(): void; returns(): void },
): () => void {
  const hidden = (event: Event): void => {
    if (!(event as PageTransitionEvent).persisted) leaves()
  }
  page.addEventListener('pagehide', hidden)
  page.addEventListener('pageshow', returns)
  page.addEventListener('online', returns)
  return () => {
    page.removeEventListener('pagehide', hidden)
    page.removeEventListener('pageshow', returns)
    page.removeEventListener('online', returns)
  }
}
