import { afterEach, expect, test, vi } from 'vitest'
import { lanSecret, lanUrl } from './lan.ts'

afterEach(() => void vi.unstubAllGlobals())

/** A page at an address, in a tab that has stored `kept`. */
function visit(address: string, kept: Record<string, string> = {}): Record<string, string> {
  vi.stubGlobal('location', new URL(address))
  vi.stubGlobal('sessionStorage', {
    getItem: (key: string) => kept[key] ?? null,
    setItem: (key: string, value: string) => (kept[key] = value),
  })
  return kept
}

test('a page of roomful dev --lan reaches the server through its own address', () => {
  visit('http://192.168.1.5:5173/#lan=a-secret_1')
  expect(lanSecret()).toBe('a-secret_1')
  expect(lanUrl('ws://localhost:4000')).toBe('ws://192.168.1.5:5173')
  expect(lanUrl('ws://127.0.0.1:4000/path')).toBe('ws://192.168.1.5:5173/path')
})

test('an address of another machine stays, so that no link changes where a deployed game connects', () => {
  visit('https://game.example/#lan=a-secret')
  expect(lanUrl('wss://rooms.example')).toBe('wss://rooms.example')
})

test('the tab keeps the secret when the address changes', () => {
  const kept = visit('http://192.168.1.5:5173/#lan=a-secret')
  lanSecret()
  visit('http://192.168.1.5:5173/lobby', kept)
  expect(lanSecret()).toBe('a-secret')
})

test('nothing changes without a secret, without a page, and without storage', () => {
  visit('http://localhost:5173/#lobby')
  expect([lanSecret(), lanUrl('ws://localhost:4000')]).toEqual([undefined, 'ws://localhost:4000'])
  vi.unstubAllGlobals()
  expect(lanSecret()).toBeUndefined()
})
