/** The part of a browser's `window` that reports when the page is hidden and shown. */
type PageEvents = Pick<EventTarget, 'addEventListener' | 'removeEventListener'>

/**
 * Watches the client's page. Calls `leaves` when the player leaves the page (`forGood`: the browser does not keep it for the Back button),
 * `returns` when the browser restores the page, and `online` when the network is back. The returned function ends the watch.
 */
export function watchPage(
  page: PageEvents,
  { leaves, returns, online }: { leaves(forGood: boolean): void; returns(): void; online(): void },
): () => void {
  const hidden = (event: Event): void => leaves(!(event as PageTransitionEvent).persisted)
  const shown = (event: Event): void => {
    if ((event as PageTransitionEvent).persisted) returns()
  }
  page.addEventListener('pagehide', hidden)
  page.addEventListener('pageshow', shown)
  page.addEventListener('online', online)
  return () => {
    page.removeEventListener('pagehide', hidden)
    page.removeEventListener('pageshow', shown)
    page.removeEventListener('online', online)
  }
}
