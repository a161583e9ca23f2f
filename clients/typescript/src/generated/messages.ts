// Made by `npm run generate` from spec/; do not edit.

export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * Subscribe
         * @description Subscribe to `topic`, to all of `topics`, or to both.
         */
        Subscribe: {
            /** @enum {unknown} */
            action: "subscribe";
            /** @default null */
            requestId?: string | number | null;
            /** @default null */
            topic?: string | null;
            /** @default null */
            topics?: string[] | null;
        };
        /**
         * Unsubscribe
         * @description End the subscription of `topic`, of all of `topics`, or of both.
         */
        Unsubscribe: {
            /** @enum {unknown} */
            action: "unsubscribe";
            /** @default null */
            requestId?: string | number | null;
            /** @default null */
            topic?: string | null;
            /** @default null */
            topics?: string[] | null;
        };
        /**
         * Relay
         * @description Co-sign and broadcast `tx`, or each of `txs`.
         */
        Relay: {
            /** @enum {unknown} */
            action: "relay";
            /** @default null */
            requestId?: string | number | null;
            tx?: components["schemas"]["TransactionJson"];
            txs?: components["schemas"]["TransactionJson"][];
            /** @default false */
            autoSubscribe?: boolean;
            /** @description W3C trace context; ignored where it is malformed. */
            traceparent?: string;
        };
        /**
         * Broadcast
         * @description Broadcast the fully signed `tx`, or each of `txs`.
         */
        Broadcast: {
            /** @enum {unknown} */
            action: "broadcast";
            /** @default null */
            requestId?: string | number | null;
            tx?: components["schemas"]["TransactionJson"];
            txs?: components["schemas"]["TransactionJson"][];
            /** @default false */
            autoSubscribe?: boolean;
            /** @description W3C trace context; ignored where it is malformed. */
            traceparent?: string;
        };
        /**
         * TopicReply
         * @description A control message was carried out.
         */
        TopicReply: {
            action: string;
            /** @enum {unknown} */
            status: "ok";
            topic: string;
            requestId?: string | number;
        };
        /**
         * FailReply
         * @description A control message or a whole submission was refused.
         */
        FailReply: {
            action: string | null;
            /** @enum {unknown} */
            status: "fail";
            reason: string;
            code: string;
            topic?: string;
            requestId?: string | number;
            retryAfterMs?: number;
            detail?: string;
        };
        /**
         * SubmissionReply
         * @description The outcome of `relay`, `broadcast` and `POST /v1/broadcast`.
         */
        SubmissionReply: {
            action: string;
            /** @enum {unknown} */
            status: "completed" | "failed" | "partial";
            hashes: string[];
            failed: components["schemas"]["FailedItem"][];
            results: components["schemas"]["ResultItem"][];
            requestId?: string | number;
        };
        /**
         * FailedItem
         * @description One refused transaction of a submission.
         */
        FailedItem: {
            index: number;
            reason: string;
            code: string;
            retryAfterMs?: number;
            detail?: string;
        };
        /**
         * ResultItem
         * @description One accepted transaction of a submission: its hashes, and what was added to it.
         */
        ResultItem: {
            index: number;
            hash: string;
            clientHash: string;
            relayerSignature?: string;
            topic?: string;
            topicRefused?: string;
            sdkHash?: string;
            /** @enum {unknown} */
            state?: "pending";
        };
        /**
         * StatusMessage
         * @description Pushed once to each subscription of `tx-status/{hash}`.
         */
        StatusMessage: {
            /** @enum {unknown} */
            type: "tx-status";
            data: components["schemas"]["StatusData"];
        };
        /**
         * StatusData
         * @description The fate of a transaction; `hash` is the one subscribed to, `chainHash` the other one if they differ.
         */
        StatusData: {
            hash: string;
            /** @enum {unknown} */
            status: "fail" | "success";
            reason?: string;
            chainHash?: string;
        };
        /**
         * AccountMessage
         * @description Pushed to `address/{bech32}` and `accounts`.
         */
        AccountMessage: {
            /** @enum {unknown} */
            type: "accountDelta";
            data: components["schemas"]["AccountData"];
        };
        /**
         * AccountData
         * @description The state of an account after a block; `balances` holds EGLD and the tokens this block changed.
         */
        AccountData: {
            address: string;
            shardId: number;
            timestamp: number;
            balances: {
                [key: string]: string;
            };
            nonce: number;
            blockHash: string;
            blockNonce?: number;
        };
        /**
         * GasStatsMessage
         * @description Pushed to subscribers of gasStats, one for each shard.
         */
        GasStatsMessage: {
            /** @enum {unknown} */
            type: "gasStats";
            data: components["schemas"]["GasStatsData"];
        };
        /**
         * GasStatsData
         * @description `ppu` is the price per gas unit that the chain's pool sorts by.
         */
        GasStatsData: {
            shard: number;
            gasPrice: components["schemas"]["GasPrice"];
            ppu: components["schemas"]["Summary"];
        };
        /**
         * GasPrice
         * @description Gas prices, with percentiles.
         */
        GasPrice: {
            min: number | null;
            max: number | null;
            avg: number | null;
            bucketAvg: number | null;
            percentiles: components["schemas"]["Percentiles"];
        };
        /**
         * Percentiles
         * @description Nearest rank: the smallest price that so many percent of the transactions do not exceed.
         */
        Percentiles: {
            p50: number | null;
            p75: number | null;
            p90: number | null;
        };
        /**
         * Summary
         * @description Prices of a window; null while nothing was seen.
         */
        Summary: {
            min: number | null;
            max: number | null;
            avg: number | null;
            bucketAvg: number | null;
        };
        /**
         * AllGasStatsMessage
         * @description Pushed to subscribers of gasStats/all, and packed to those of gasStats/all/deflate.
         */
        AllGasStatsMessage: {
            /** @enum {unknown} */
            type: "gasStats/all";
            data: components["schemas"]["AllGasStatsData"];
        };
        /**
         * AllGasStatsData
         * @description Every shard's, in their order.
         */
        AllGasStatsData: {
            shards: components["schemas"]["GasStatsData"][];
        };
        /**
         * NetworkStatsMessage
         * @description Pushed to /ws/stats and to subscribers of networkStats.
         */
        NetworkStatsMessage: {
            /** @enum {unknown} */
            type: "networkStats";
            schemaVersion: string;
            sequence: number;
            ts: number;
            data: components["schemas"]["NetworkData"];
        };
        /** NetworkData */
        NetworkData: {
            network: components["schemas"]["Network"];
            blocks: components["schemas"]["Blocks"];
            mempool: components["schemas"]["Mempool"];
            validators: components["schemas"]["Validators"];
            health: components["schemas"]["Health"];
        };
        /** Network */
        Network: {
            currentTps: number | null;
            avgTps10s: number | null;
            avgTps30s: number | null;
            connectedPeers: number | null;
            activeValidators: number | null;
            wsLagMs: number | null;
        };
        /** Blocks */
        Blocks: {
            latestShard: components["schemas"]["ShardBlock"];
            latestMeta: components["schemas"]["MetaBlock"];
            blockTimeMsP50ByShard: {
                [key: string]: number | null;
            };
            nonceGapEvents1m: number | null;
            duplicateNonceEvents1m: number | null;
        };
        /** ShardBlock */
        ShardBlock: {
            /** @default null */
            shardId?: number | null;
            /** @default null */
            nonce?: number | null;
            /** @default null */
            round?: number | null;
            /** @default null */
            epoch?: number | null;
            /** @default null */
            txCount?: number | null;
            /** @default null */
            executedTxCount?: number | null;
            /** @default null */
            timestampMs?: number | null;
            /** @default null */
            leaderSignatureHex?: string | null;
            /** @default null */
            accumulatedFees?: string | null;
            /** @default null */
            developerFees?: string | null;
        };
        /** MetaBlock */
        MetaBlock: {
            /** @default null */
            nonce?: number | null;
            /** @default null */
            round?: number | null;
            /** @default null */
            epoch?: number | null;
            /** @default null */
            txCount?: number | null;
            /** @default null */
            executedTxCount?: number | null;
            /** @default null */
            timestampMs?: number | null;
        };
        /** Mempool */
        Mempool: {
            estimatedQueue: number | null;
            ingressTps: number | null;
            inclusionTps: number | null;
            pressure: number | null;
        };
        /** Validators */
        Validators: {
            onlineByShard: {
                [key: string]: number | null;
            };
            totalOnline: number | null;
            heartbeatRatePerSec: number | null;
        };
        /** Health */
        Health: {
            p2pDedupRatio1m: number | null;
            streamSubscribers: number;
            dataCompleteness: number;
        };
        /**
         * ShutdownMessage
         * @description The service is about to end. With `afterMs` it serves on until then; else the connection is closed at once.
         */
        ShutdownMessage: {
            /** @enum {unknown} */
            type: "serverShutdown";
            moveTo?: string[];
            afterMs?: number;
        };
        /**
         * TransactionJson
         * @description The JSON object of the public interfaces: texts as they come, not checked beyond their type.
         */
        TransactionJson: {
            nonce: number;
            value: string;
            receiver: string;
            sender: string;
            gasPrice: number;
            gasLimit: number;
            version: number;
            chainID: string;
            /** @default  */
            senderUsername?: string;
            /** @default  */
            receiverUsername?: string;
            /** @default  */
            data?: string;
            /** @default 0 */
            options?: number;
            /** @default  */
            guardian?: string;
            /** @default  */
            guardianSignature?: string;
            /** @default  */
            relayer?: string;
            /** @default  */
            relayerSignature?: string;
            /** @default  */
            signature?: string;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
