import { afterEach, expect, test, vi } from 'vitest'
import { lanSecret, lanUrl } from './lan.ts'

afterEach(() => void vi.unstubAllGlobals())

/** A page at an address, with cookies. */
function visit(address: string, cookie: string): void {
  vi.stubGlobal('location', new URL(address))
  vi.stubGlobal('document', { cookie })
}

test('a page of roomful dev --lan reaches the server through its own address', () => {
  visit('http://192.168.1.5:5173/lobby', 'player=ada; roomful_lan=a-secret_1; theme=dark')
  expect(lanSecret()).toBe('a-secret_1')
  expect(lanUrl('ws://localhost:4000')).toBe('ws://192.168.1.5:5173')
  expect(lanUrl('ws://127.0.0.1:4000/path')).toBe('ws://192.168.1.5:5173/path')
})

test('an address of another machine stays, so that no cookie changes where a deployed game connects', () => {
  visit('https://game.example/', 'roomful_lan=a-secret')
  expect(lanUrl('wss://rooms.example')).toBe('wss://rooms.example')
})

test('nothing changes without a secret, without a page, and without cookies', () => {
  visit('http://localhost:5173/#lobby', 'no_roomful_lan=a-secret')
  expect([lanSecret(), lanUrl('ws://localhost:4000')]).toEqual([undefined, 'ws://localhost:4000'])
  vi.unstubAllGlobals()
  expect(lanSecret()).toBeUndefined()
})
