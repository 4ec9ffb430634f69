import { describe, expect, it } from 'vitest'
import { TrustedProxies } from './trusted-proxies.ts'

const proxies = new TrustedProxies(['10.0.0.0/8', '192.0.2.1', '2001:db8:1::/48', '::1'])

describe('where a connection comes from', () => {
  it.each([
    ['a peer that is no proxy', '203.0.113.7', undefined, '203.0.113.7'],
    ['its header is not believed', '203.0.113.7', '198.51.100.1', '203.0.113.7'],
    ['behind a proxy', '10.0.0.1', '203.0.113.7', '203.0.113.7'],
    ['behind a proxy whose address is mapped into IPv6', '::ffff:10.0.0.1', '203.0.113.7', '203.0.113.7'],
    [
      'behind two: the last address that is no proxy',
      '10.0.0.1',
      '198.51.100.1, 203.0.113.7, 192.0.2.1',
      '203.0.113.7',
    ],
    ['with a port', '10.0.0.1', '203.0.113.7:4711', '203.0.113.7'],
    ['IPv6: the first 64 bits', '2001:db8:1::9', '2001:db8:2:3:4:5:6:7', '2001:db8:2:3'],
    ['IPv6, shortened', '::1', '2001:db8:2::7', '2001:db8:2:0'],
    ['IPv6, shortened at the start of its second half', '::1', '2001:db8:2:3::', '2001:db8:2:3'],
    ['IPv6 in brackets, with a port and a zone', '::1', '[fe80::1%eth0]:4711', 'fe80:0:0:0'],
  ])('%s', (_, peer, header, address) => {
    expect(proxies.clientOf(peer, header)).toBe(address)
  })

  it('is behind whoever is in a private network, where those are trusted', () => {
    const local = new TrustedProxies(['private', '203.0.113.0/24'])
    for (const peer of [
      '127.0.0.1',
      '::1',
      '10.1.2.3',
      '172.31.0.1',
      '192.168.1.1',
      'fd00::1',
      '203.0.113.9',
    ])
      expect(local.clientOf(peer, '198.51.100.1'), peer).toBe('198.51.100.1')
    for (const peer of ['172.32.0.1', '192.0.2.1']) expect(local.clientOf(peer, '198.51.100.1')).toBe(peer)
  })

  it.each([
    ['a proxy says nothing', '10.0.0.1', undefined],
    ['a proxy names proxies alone', '10.0.0.1', '10.1.2.3'],
    ['a proxy names no address', '10.0.0.1', 'unknown'],
    ['the peer has gone', undefined, '203.0.113.7'],
  ])('is not known where %s', (_, peer, header) => {
    expect(proxies.clientOf(peer, header)).toBeUndefined()
  })
})
