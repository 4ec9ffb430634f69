/** What clients and queues say to each other, besides what all rooms do. */

/** Code of a party: its size, and 128 random bits. */
export const PARTY_CODE = /^([1-9]\d?|100)-[0-9a-f]{32}$/

/** Text of the end of a matched ticket's seat, and of the refusal of a join that asks for one: behind it `{ room_id, options }` as JSON. */
export const MATCHED = 'matched '
