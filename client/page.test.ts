import { expect, test } from 'vitest'
import { watchPage } from './page.ts'

class Page extends EventTarget {
  fire(type: string, fields: object = {}): void {
    this.dispatchEvent(Object.assign(new Event(type), fields))
  }
}

test('a page that is left for good is told from one that is kept', () => {
  const page = new Page()
  const seen: string[] = []
  const stop = watchPage(page, { leaves: () => seen.push('leaves'), returns: () => seen.push('returns') })
  page.fire('pagehide', { persisted: true })
  page.fire('pageshow', { persisted: true })
  page.fire('online')
  page.fire('pagehide', { persisted: false })
  expect(seen).toEqual(['returns', 'returns', 'leaves'])
  stop()
  page.fire('pagehide', { persisted: false })
  page.fire('pageshow')
  page.fire('online')
  expect(seen).toHaveLength(3)
})
